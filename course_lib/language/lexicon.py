# ruff: noqa: E501  (the tables are read across)
"""The words of the generated corpus, one concept a row, with the forms each language needs.

Only what cannot be derived by a rule of `grammar.py` is written down. Columns are separated by `|`,
forms by blanks, and `_` stands for a blank inside a form.

Nouns: English singular and plural | French singular, plural, gender (`h`: the h is aspirated, no
elision) | German singular, plural, gender (`*`: weak noun, every form but the nominative singular
equals the plural) | Spanish singular, plural, gender (`!`: feminine with a stressed initial a, hence
"el hacha").
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """A noun: singular and plural in each language, gender and the marks explained above."""

    name: str
    kind: str
    en: tuple[str, str]
    fr: tuple[str, str]
    fr_gender: str
    de: tuple[str, str]
    de_gender: str
    de_weak: bool
    es: tuple[str, str]
    es_gender: str
    es_stressed_a: bool

    @property
    def concept(self) -> str:
        """Its name among the concepts of the corpus, `category:name`."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class Adjective:
    """An adjective: French forms and position, German stem, Spanish forms, kinds of noun it fits."""

    name: str
    kind: str
    fits: frozenset[str]
    fr: tuple[str, str, str, str]
    fr_before: bool
    fr_before_vowel: str
    de: str
    es: tuple[str, str, str, str]

    @property
    def concept(self) -> str:
        """Its name among the concepts of the corpus, `category:name`."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class Verb:
    """A verb in the third person: its forms, who can do it (`subjects`) and to what (`objects`)."""

    name: str
    frame: str
    subjects: frozenset[str]
    objects: frozenset[str]
    en: tuple[str, str, str]
    fr_present: tuple[str, str]
    fr_participle: str
    fr_future: str
    fr_with_etre: bool
    de: tuple[str, str, str]
    es_present: str
    es_past: tuple[str, str]
    es_future: str

    @property
    def concept(self) -> str:
        """Its name among the concepts of the corpus."""
        return f"verb:{self.name}"


@dataclass(frozen=True)
class Place:
    """A place with the preposition that each language puts before it."""

    name: str
    en: tuple[str, str]
    fr: tuple[str, str, str]
    de: tuple[str, str, str]
    es: tuple[str, str, str]

    @property
    def concept(self) -> str:
        """Its name among the concepts of the corpus."""
        return f"place:{self.name}"


@dataclass(frozen=True)
class Time:
    """An adverbial of time and the tenses that it goes with."""

    name: str
    tenses: tuple[str, ...]
    en: str
    fr: str
    de: str
    es: str

    @property
    def concept(self) -> str:
        """Its name among the concepts of the corpus."""
        return f"time:{self.name}"


NOUNS_BY_KIND = {
    "animal": """
        dog dogs             | chien chiens m           | Hund Hunde m               | perro perros m
        cat cats             | chat chats m             | Katze Katzen f             | gato gatos m
        horse horses         | cheval chevaux m         | Pferd Pferde n             | caballo caballos m
        cow cows             | vache vaches f           | Kuh Kühe f                 | vaca vacas f
        bird birds           | oiseau oiseaux m         | Vogel Vögel m              | pájaro pájaros m
        wolf wolves          | loup loups m             | Wolf Wölfe m               | lobo lobos m
        lion lions           | lion lions m             | Löwe Löwen m*              | león leones m
        eagle eagles         | aigle aigles m           | Adler Adler m              | águila águilas f!
        rabbit rabbits       | lapin lapins m           | Kaninchen Kaninchen n      | conejo conejos m
        elephant elephants   | éléphant éléphants m     | Elefant Elefanten m*       | elefante elefantes m
        monkey monkeys       | singe singes m           | Affe Affen m*              | mono monos m
        frog frogs           | grenouille grenouilles f | Frosch Frösche m           | rana ranas f
        bee bees             | abeille abeilles f       | Biene Bienen f             | abeja abejas f
        hedgehog hedgehogs   | hérisson hérissons mh    | Igel Igel m                | erizo erizos m
        mouse mice           | souris souris f          | Maus Mäuse f               | ratón ratones m
        goat goats           | chèvre chèvres f         | Ziege Ziegen f             | cabra cabras f
        pig pigs             | cochon cochons m         | Schwein Schweine n         | cerdo cerdos m
        bear bears           | ours ours m              | Bär Bären m*               | oso osos m
        fox foxes            | renard renards m         | Fuchs Füchse m             | zorro zorros m
        duck ducks           | canard canards m         | Ente Enten f               | pato patos m
        snake snakes         | serpent serpents m       | Schlange Schlangen f       | serpiente serpientes f
        turtle turtles       | tortue tortues f         | Schildkröte Schildkröten f | tortuga tortugas f
        squirrel squirrels   | écureuil écureuils m     | Eichhörnchen Eichhörnchen n | ardilla ardillas f
        owl owls             | hibou hiboux mh          | Eule Eulen f               | búho búhos m
    """,
    "person": """
        man men              | homme hommes m           | Mann Männer m              | hombre hombres m
        woman women          | femme femmes f           | Frau Frauen f              | mujer mujeres f
        boy boys             | garçon garçons m         | Junge Jungen m*            | muchacho muchachos m
        girl girls           | fille filles f           | Mädchen Mädchen n          | muchacha muchachas f
        child children       | enfant enfants m         | Kind Kinder n              | niño niños m
        baby babies          | bébé bébés m             | Baby Babys n               | bebé bebés m
        sister sisters       | sœur sœurs f             | Schwester Schwestern f     | hermana hermanas f
        brother brothers     | frère frères m           | Bruder Brüder m            | hermano hermanos m
        mother mothers       | mère mères f             | Mutter Mütter f            | madre madres f
        father fathers       | père pères m             | Vater Väter m              | padre padres m
        grandmother grandmothers | grand-mère grands-mères f | Großmutter Großmütter f | abuela abuelas f
        grandfather grandfathers | grand-père grands-pères m | Großvater Großväter m   | abuelo abuelos m
        aunt aunts           | tante tantes f           | Tante Tanten f             | tía tías f
        uncle uncles         | oncle oncles m           | Onkel Onkel m              | tío tíos m
        husband husbands     | mari maris m             | Ehemann Ehemänner m        | marido maridos m
        neighbour neighbours | voisin voisins m         | Nachbar Nachbarn m*        | vecino vecinos m
        friend friends       | ami amis m               | Freund Freunde m           | amigo amigos m
    """,
    "role": """
        teacher teachers     | professeur professeurs m | Lehrer Lehrer m            | profesor profesores m
        student students     | étudiant étudiants m     | Student Studenten m*       | estudiante estudiantes m
        doctor doctors       | médecin médecins m       | Arzt Ärzte m               | médico médicos m
        nurse nurses         | infirmière infirmières f | Krankenschwester Krankenschwestern f | enfermera enfermeras f
        dentist dentists     | dentiste dentistes m     | Zahnarzt Zahnärzte m       | dentista dentistas m
        farmer farmers       | agriculteur agriculteurs m | Bauer Bauern m*          | agricultor agricultores m
        gardener gardeners   | jardinier jardiniers m   | Gärtner Gärtner m          | jardinero jardineros m
        baker bakers         | boulanger boulangers m   | Bäcker Bäcker m            | panadero panaderos m
        cook cooks           | cuisinier cuisiniers m   | Koch Köche m               | cocinero cocineros m
        king kings           | roi rois m               | König Könige m             | rey reyes m
        queen queens         | reine reines f           | Königin Königinnen f       | reina reinas f
        princess princesses  | princesse princesses f   | Prinzessin Prinzessinnen f | princesa princesas f
        witch witches        | sorcière sorcières f     | Hexe Hexen f               | bruja brujas f
        actress actresses    | actrice actrices f       | Schauspielerin Schauspielerinnen f | actriz actrices f
        singer singers       | chanteuse chanteuses f   | Sängerin Sängerinnen f     | cantante cantantes f
        painter painters     | peintre peintres m       | Maler Maler m              | pintor pintores m
        writer writers       | écrivain écrivains m     | Schriftsteller Schriftsteller m | escritor escritores m
        soldier soldiers     | soldat soldats m         | Soldat Soldaten m*         | soldado soldados m
        sailor sailors       | marin marins m           | Matrose Matrosen m*        | marinero marineros m
        pilot pilots         | pilote pilotes m         | Pilot Piloten m*           | piloto pilotos m
        judge judges         | juge juges m             | Richter Richter m          | juez jueces m
        lawyer lawyers       | avocat avocats m         | Anwalt Anwälte m           | abogado abogados m
        thief thieves        | voleur voleurs m         | Dieb Diebe m               | ladrón ladrones m
        hunter hunters       | chasseur chasseurs m     | Jäger Jäger m              | cazador cazadores m
        fisherman fishermen  | pêcheur pêcheurs m       | Fischer Fischer m          | pescador pescadores m
    """,
    "food": """
        apple apples         | pomme pommes f           | Apfel Äpfel m              | manzana manzanas f
        pear pears           | poire poires f           | Birne Birnen f             | pera peras f
        egg eggs             | œuf œufs m               | Ei Eier n                  | huevo huevos m
        cake cakes           | gâteau gâteaux m         | Kuchen Kuchen m            | pastel pasteles m
        orange oranges       | orange oranges f         | Orange Orangen f           | naranja naranjas f
        tomato tomatoes      | tomate tomates f         | Tomate Tomaten f           | tomate tomates m
        onion onions         | oignon oignons m         | Zwiebel Zwiebeln f         | cebolla cebollas f
        cheese cheeses       | fromage fromages m       | Käse Käse m                | queso quesos m
        soup soups           | soupe soupes f           | Suppe Suppen f             | sopa sopas f
        banana bananas       | banane bananes f         | Banane Bananen f           | plátano plátanos m
        carrot carrots       | carotte carottes f       | Karotte Karotten f         | zanahoria zanahorias f
        lemon lemons         | citron citrons m         | Zitrone Zitronen f         | limón limones m
        sausage sausages     | saucisse saucisses f     | Wurst Würste f             | salchicha salchichas f
        cherry cherries      | cerise cerises f         | Kirsche Kirschen f         | cereza cerezas f
        strawberry strawberries | fraise fraises f      | Erdbeere Erdbeeren f       | fresa fresas f
        plum plums           | prune prunes f           | Pflaume Pflaumen f         | ciruela ciruelas f
        peach peaches        | pêche pêches f           | Pfirsich Pfirsiche m       | melocotón melocotones m
        biscuit biscuits     | biscuit biscuits m       | Keks Kekse m               | galleta galletas f
        pizza pizzas         | pizza pizzas f           | Pizza Pizzas f             | pizza pizzas f
        salad salads         | salade salades f         | Salat Salate m             | ensalada ensaladas f
        mushroom mushrooms   | champignon champignons m | Pilz Pilze m               | seta setas f
        cucumber cucumbers   | concombre concombres m   | Gurke Gurken f             | pepino pepinos m
        pumpkin pumpkins     | citrouille citrouilles f | Kürbis Kürbisse m          | calabaza calabazas f
        nut nuts             | noix noix f              | Nuss Nüsse f               | nuez nueces f
    """,
    "tool": """
        knife knives         | couteau couteaux m       | Messer Messer n            | cuchillo cuchillos m
        hammer hammers       | marteau marteaux m       | Hammer Hämmer m            | martillo martillos m
        axe axes             | hache haches fh          | Axt Äxte f                 | hacha hachas f!
        key keys             | clé clés f               | Schlüssel Schlüssel m      | llave llaves f
        rope ropes           | corde cordes f           | Seil Seile n               | cuerda cuerdas f
        ladder ladders       | échelle échelles f       | Leiter Leitern f           | escalera escaleras f
        shovel shovels       | pelle pelles f           | Schaufel Schaufeln f       | pala palas f
        brush brushes        | brosse brosses f         | Bürste Bürsten f           | cepillo cepillos m
        needle needles       | aiguille aiguilles f     | Nadel Nadeln f             | aguja agujas f
        pencil pencils       | crayon crayons m         | Bleistift Bleistifte m     | lápiz lápices m
        bucket buckets       | seau seaux m             | Eimer Eimer m              | cubo cubos m
        nail nails           | clou clous m             | Nagel Nägel m              | clavo clavos m
        broom brooms         | balai balais m           | Besen Besen m              | escoba escobas f
        screwdriver screwdrivers | tournevis tournevis m | Schraubenzieher Schraubenzieher m | destornillador destornilladores m
        rake rakes           | râteau râteaux m         | Rechen Rechen m            | rastrillo rastrillos m
        basket baskets       | panier paniers m         | Korb Körbe m               | cesta cestas f
        candle candles       | bougie bougies f         | Kerze Kerzen f             | vela velas f
        umbrella umbrellas   | parapluie parapluies m   | Regenschirm Regenschirme m | paraguas paraguas m
    """,
    "clothing": """
        shirt shirts         | chemise chemises f       | Hemd Hemden n              | camisa camisas f
        hat hats             | chapeau chapeaux m       | Hut Hüte m                 | sombrero sombreros m
        coat coats           | manteau manteaux m       | Mantel Mäntel m            | abrigo abrigos m
        shoe shoes           | chaussure chaussures f   | Schuh Schuhe m             | zapato zapatos m
        dress dresses        | robe robes f             | Kleid Kleider n            | vestido vestidos m
        glove gloves         | gant gants m             | Handschuh Handschuhe m     | guante guantes m
        skirt skirts         | jupe jupes f             | Rock Röcke m               | falda faldas f
        sock socks           | chaussette chaussettes f | Socke Socken f             | calcetín calcetines m
        scarf scarves        | écharpe écharpes f       | Schal Schals m             | bufanda bufandas f
        belt belts           | ceinture ceintures f     | Gürtel Gürtel m            | cinturón cinturones m
        boot boots           | botte bottes f           | Stiefel Stiefel m          | bota botas f
        jacket jackets       | veste vestes f           | Jacke Jacken f             | chaqueta chaquetas f
        tie ties             | cravate cravates f       | Krawatte Krawatten f       | corbata corbatas f
        cap caps             | casquette casquettes f   | Mütze Mützen f             | gorra gorras f
        ring rings           | bague bagues f           | Ring Ringe m               | anillo anillos m
    """,
    "furniture": """
        table tables         | table tables f           | Tisch Tische m             | mesa mesas f
        chair chairs         | chaise chaises f         | Stuhl Stühle m             | silla sillas f
        bed beds             | lit lits m               | Bett Betten n              | cama camas f
        lamp lamps           | lampe lampes f           | Lampe Lampen f             | lámpara lámparas f
        mirror mirrors       | miroir miroirs m         | Spiegel Spiegel m          | espejo espejos m
        cupboard cupboards   | armoire armoires f       | Schrank Schränke m         | armario armarios m
        clock clocks         | horloge horloges f       | Uhr Uhren f                | reloj relojes m
        sofa sofas           | canapé canapés m         | Sofa Sofas n               | sofá sofás m
        shelf shelves        | étagère étagères f       | Regal Regale n             | estante estantes m
        carpet carpets       | tapis tapis m            | Teppich Teppiche m         | alfombra alfombras f
        pillow pillows       | oreiller oreillers m     | Kissen Kissen n            | almohada almohadas f
        curtain curtains     | rideau rideaux m         | Vorhang Vorhänge m         | cortina cortinas f
        blanket blankets     | couverture couvertures f | Decke Decken f             | manta mantas f
    """,
    "vehicle": """
        car cars             | voiture voitures f       | Auto Autos n               | coche coches m
        boat boats           | bateau bateaux m         | Boot Boote n               | barco barcos m
        bicycle bicycles     | vélo vélos m             | Fahrrad Fahrräder n        | bicicleta bicicletas f
        train trains         | train trains m           | Zug Züge m                 | tren trenes m
        plane planes         | avion avions m           | Flugzeug Flugzeuge n       | avión aviones m
        truck trucks         | camion camions m         | Lastwagen Lastwagen m      | camión camiones m
        bus buses            | bus bus m                | Bus Busse m                | autobús autobuses m
        motorcycle motorcycles | moto motos f           | Motorrad Motorräder n      | moto motos f
        tractor tractors     | tracteur tracteurs m     | Traktor Traktoren m        | tractor tractores m
        taxi taxis           | taxi taxis m             | Taxi Taxis n               | taxi taxis m
        helicopter helicopters | hélicoptère hélicoptères m | Hubschrauber Hubschrauber m | helicóptero helicópteros m
        rocket rockets       | fusée fusées f           | Rakete Raketen f           | cohete cohetes m
    """,
    "plant": """
        tree trees           | arbre arbres m           | Baum Bäume m               | árbol árboles m
        flower flowers       | fleur fleurs f           | Blume Blumen f             | flor flores f
        rose roses           | rose roses f             | Rose Rosen f               | rosa rosas f
        tulip tulips         | tulipe tulipes f         | Tulpe Tulpen f             | tulipán tulipanes m
        sunflower sunflowers | tournesol tournesols m   | Sonnenblume Sonnenblumen f | girasol girasoles m
        bush bushes          | buisson buissons m       | Busch Büsche m             | arbusto arbustos m
        oak oaks             | chêne chênes m           | Eiche Eichen f             | roble robles m
        fir firs             | sapin sapins m           | Tanne Tannen f             | abeto abetos m
        palm palms           | palmier palmiers m       | Palme Palmen f             | palmera palmeras f
        leaf leaves          | feuille feuilles f       | Blatt Blätter n            | hoja hojas f
    """,
    "instrument": """
        guitar guitars       | guitare guitares f       | Gitarre Gitarren f         | guitarra guitarras f
        piano pianos         | piano pianos m           | Klavier Klaviere n         | piano pianos m
        violin violins       | violon violons m         | Geige Geigen f             | violín violines m
        drum drums           | tambour tambours m       | Trommel Trommeln f         | tambor tambores m
        flute flutes         | flûte flûtes f           | Flöte Flöten f             | flauta flautas f
        trumpet trumpets     | trompette trompettes f   | Trompete Trompeten f       | trompeta trompetas f
        harp harps           | harpe harpes fh          | Harfe Harfen f             | arpa arpas f!
        accordion accordions | accordéon accordéons m   | Akkordeon Akkordeons n     | acordeón acordeones m
        bell bells           | cloche cloches f         | Glocke Glocken f           | campana campanas f
    """,
    "toy": """
        ball balls           | ballon ballons m         | Ball Bälle m               | pelota pelotas f
        doll dolls           | poupée poupées f         | Puppe Puppen f             | muñeca muñecas f
        kite kites           | cerf-volant cerfs-volants m | Drachen Drachen m       | cometa cometas f
        puzzle puzzles       | puzzle puzzles m         | Puzzle Puzzles n           | rompecabezas rompecabezas m
        robot robots         | robot robots m           | Roboter Roboter m          | robot robots m
        mask masks           | masque masques m         | Maske Masken f             | máscara máscaras f
        racket rackets       | raquette raquettes f     | Schläger Schläger m        | raqueta raquetas f
        sledge sledges       | luge luges f             | Schlitten Schlitten m      | trineo trineos m
    """,
    "document": """
        book books           | livre livres m           | Buch Bücher n              | libro libros m
        letter letters       | lettre lettres f         | Brief Briefe m             | carta cartas f
        newspaper newspapers | journal journaux m       | Zeitung Zeitungen f        | periódico periódicos m
        picture pictures     | image images f           | Bild Bilder n              | imagen imágenes f
        novel novels         | roman romans m           | Roman Romane m             | novela novelas f
        poem poems           | poème poèmes m           | Gedicht Gedichte n         | poema poemas m
        dictionary dictionaries | dictionnaire dictionnaires m | Wörterbuch Wörterbücher n | diccionario diccionarios m
        ticket tickets       | billet billets m         | Fahrkarte Fahrkarten f     | billete billetes m
        stamp stamps         | timbre timbres m         | Briefmarke Briefmarken f   | sello sellos m
    """,
    "tableware": """
        plate plates         | assiette assiettes f     | Teller Teller m            | plato platos m
        cup cups             | tasse tasses f           | Tasse Tassen f             | taza tazas f
        glass glasses        | verre verres m           | Glas Gläser n              | vaso vasos m
        bottle bottles       | bouteille bouteilles f   | Flasche Flaschen f         | botella botellas f
        spoon spoons         | cuillère cuillères f     | Löffel Löffel m            | cuchara cucharas f
        fork forks           | fourchette fourchettes f | Gabel Gabeln f             | tenedor tenedores m
        bowl bowls           | bol bols m               | Schüssel Schüsseln f       | tazón tazones m
        pan pans             | poêle poêles f           | Pfanne Pfannen f           | sartén sartenes f
        teapot teapots       | théière théières f       | Teekanne Teekannen f       | tetera teteras f
    """,
    "building": """
        tower towers         | tour tours f             | Turm Türme m               | torre torres f
        bridge bridges       | pont ponts m             | Brücke Brücken f           | puente puentes m
        wall walls           | mur murs m               | Mauer Mauern f             | muro muros m
        temple temples       | temple temples m         | Tempel Tempel m            | templo templos m
        hut huts             | cabane cabanes f         | Hütte Hütten f             | cabaña cabañas f
        gate gates           | portail portails m       | Tor Tore n                 | portón portones m
        fountain fountains   | fontaine fontaines f     | Brunnen Brunnen m          | fuente fuentes f
        window windows       | fenêtre fenêtres f       | Fenster Fenster n          | ventana ventanas f
        roof roofs           | toit toits m             | Dach Dächer n              | tejado tejados m
    """,
}

# French: masculine, feminine, masculine plural, then `<` where it stands before the noun and the
# masculine form before a vowel where that differs. Spanish: masculine, feminine, masculine plural.
# Last column: the kinds of noun it fits.
ADJECTIVES_BY_KIND = {
    "colour": """
        red       | rouge rouge rouges              | rot      | rojo roja rojos                | things plant food
        blue      | bleu bleue bleus                | blau     | azul azul azules               | things
        green     | vert verte verts                | grün     | verde verde verdes             | things plant food
        white     | blanc blanche blancs            | weiß     | blanco blanca blancos          | things animal building
        black     | noir noire noirs                | schwarz  | negro negra negros             | things animal
        yellow    | jaune jaune jaunes              | gelb     | amarillo amarilla amarillos    | things plant food
        brown     | brun brune bruns                | braun    | marrón marrón marrones         | things animal
        grey      | gris grise gris                 | grau     | gris gris grises               | things animal building
        violet    | violet violette violets         | violett  | morado morada morados          | things plant
    """,
    "size": """
        big       | grand grande grands <           | groß     | grande grande grandes          | things animal plant building food
        small     | petit petite petits <           | klein    | pequeño pequeña pequeños       | things animal plant building food
        enormous  | énorme énorme énormes           | riesig   | enorme enorme enormes          | animal plant building vehicle
        long      | long longue longs <             | lang     | largo larga largos             | clothing building document
        heavy     | lourd lourde lourds             | schwer   | pesado pesada pesados          | things
        light     | léger légère légers             | leicht   | ligero ligera ligeros          | things
    """,
    "condition": """
        old       | vieux vieille vieux < vieil     | alt      | viejo vieja viejos             | things animal people building plant
        new       | nouveau nouvelle nouveaux < nouvel | neu   | nuevo nueva nuevos             | things building
        young     | jeune jeune jeunes <            | jung     | joven joven jóvenes            | animal people
        expensive | cher chère chers                | teur     | caro cara caros                | things food
        clean     | propre propre propres           | sauber   | limpio limpia limpios          | things animal
        dirty     | sale sale sales                 | schmutzig | sucio sucia sucios            | things animal
        empty     | vide vide vides                 | leer     | vacío vacía vacíos             | tableware building
        rusty     | rouillé rouillée rouillés       | rostig   | oxidado oxidada oxidados       | tool vehicle
        hot       | chaud chaude chauds             | heiß     | caliente caliente calientes    | food tableware
        cold      | froid froide froids             | kalt     | frío fría fríos                | food tableware
        fresh     | frais fraîche frais             | frisch   | fresco fresca frescos          | food
        rotten    | pourri pourrie pourris          | faul     | podrido podrida podridos       | food
    """,
    "quality": """
        beautiful | beau belle beaux < bel          | schön    | hermoso hermosa hermosos       | things animal people plant building
        delicious | délicieux délicieuse délicieux  | köstlich | delicioso deliciosa deliciosos | food
        famous    | célèbre célèbre célèbres        | berühmt  | famoso famosa famosos          | people building
        strong    | fort forte forts                | stark    | fuerte fuerte fuertes          | people animal
        rich      | riche riche riches              | reich    | rico rica ricos                | people
        poor      | pauvre pauvre pauvres           | arm      | pobre pobre pobres             | people
        clever    | intelligent intelligente intelligents | klug | inteligente inteligente inteligentes | people animal
        brave     | courageux courageuse courageux  | mutig    | valiente valiente valientes    | people animal
        kind      | gentil gentille gentils         | freundlich | amable amable amables        | people
        cruel     | cruel cruelle cruels            | grausam  | cruel cruel crueles            | people animal
        shy       | timide timide timides           | schüchtern | tímido tímida tímidos        | people animal
    """,
    "feeling": """
        happy     | heureux heureuse heureux        | glücklich | feliz feliz felices           | people
        sad       | triste triste tristes           | traurig  | triste triste tristes          | people animal
        angry     | furieux furieuse furieux        | wütend   | furioso furiosa furiosos       | people animal
        tired     | fatigué fatiguée fatigués       | müd      | cansado cansada cansados       | people animal
        sick      | malade malade malades           | krank    | enfermo enferma enfermos       | people animal
        hungry    | affamé affamée affamés          | hungrig  | hambriento hambrienta hambrientos | people animal
    """,
    "nationality": """
        French    | français française français     | französisch | francés francesa franceses  | people things food
        German    | allemand allemande allemands    | deutsch  | alemán alemana alemanes        | people things food
        Spanish   | espagnol espagnole espagnols    | spanisch | español española españoles     | people things food
        Italian   | italien italienne italiens      | italienisch | italiano italiana italianos | people things food
        Chinese   | chinois chinoise chinois        | chinesisch | chino china chinos           | people things food
        Japanese  | japonais japonaise japonais     | japanisch | japonés japonesa japoneses    | people things food
    """,
}

# English base, third person singular, past | French present singular and plural, participle, stem of
# the future, `e` where the past is built with être | German infinitive, present and past singular |
# Spanish present singular, past singular and plural, stem of the future | subjects | objects.
VERBS_BY_FRAME = {
    "intransitive": """
        sleep sleeps slept    | dort dorment dormi dormir               | schlafen schläft schlief     | duerme durmió durmieron dormir        | people animal |
        run runs ran          | court courent couru courr               | rennen rennt rannte          | corre corrió corrieron correr         | people animal |
        swim swims swam       | nage nagent nagé nager                  | schwimmen schwimmt schwamm   | nada nadó nadaron nadar               | people animal |
        fall falls fell       | tombe tombent tombé tomber e            | fallen fällt fiel            | cae cayó cayeron caer                 | people animal things |
        stay stays stayed     | reste restent resté rester e            | bleiben bleibt blieb         | se_queda se_quedó se_quedaron se_quedar | people animal |
        wait waits waited     | attend attendent attendu attendr        | warten wartet wartete        | espera esperó esperaron esperar       | people animal |
        play plays played     | joue jouent joué jouer                  | spielen spielt spielte       | juega jugó jugaron jugar              | people animal |
        sing sings sang       | chante chantent chanté chanter          | singen singt sang            | canta cantó cantaron cantar           | people |
        dance dances danced   | danse dansent dansé danser              | tanzen tanzt tanzte          | baila bailó bailaron bailar           | people |
        work works worked     | travaille travaillent travaillé travailler | arbeiten arbeitet arbeitete | trabaja trabajó trabajaron trabajar | people |
        smile smiles smiled   | sourit sourient souri sourir            | lächeln lächelt lächelte     | sonríe sonrió sonrieron sonreir       | people |
        cry cries cried       | pleure pleurent pleuré pleurer          | weinen weint weinte          | llora lloró lloraron llorar           | people |
        travel travels travelled | voyage voyagent voyagé voyager       | reisen reist reiste          | viaja viajó viajaron viajar           | people |
        jump jumps jumped     | saute sautent sauté sauter              | springen springt sprang      | salta saltó saltaron saltar           | people animal |
        laugh laughs laughed  | rit rient ri rir                        | lachen lacht lachte          | ríe rió rieron reir                   | people |
        shout shouts shouted  | crie crient crié crier                  | schreien schreit schrie      | grita gritó gritaron gritar           | people |
        dream dreams dreamed  | rêve rêvent rêvé rêver                  | träumen träumt träumte       | sueña soñó soñaron soñar              | people |
        breathe breathes breathed | respire respirent respiré respirer  | atmen atmet atmete           | respira respiró respiraron respirar   | people animal |
        die dies died         | meurt meurent mort mourr e              | sterben stirbt starb         | muere murió murieron morir            | people animal plant |
        grow grows grew       | pousse poussent poussé pousser          | wachsen wächst wuchs         | crece creció crecieron crecer         | plant |
        burn burns burned     | brûle brûlent brûlé brûler              | brennen brennt brannte       | arde ardió ardieron arder             | building furniture plant document |
        explode explodes exploded | explose explosent explosé exploser  | explodieren explodiert explodierte | explota explotó explotaron explotar | vehicle building |
        disappear disappears disappeared | disparaît disparaissent disparu disparaîtr | verschwinden verschwindet verschwand | desaparece desapareció desaparecieron desaparecer | people animal things |
    """,
    "transitive": """
        see sees saw          | voit voient vu verr                     | sehen sieht sah              | ve vio vieron ver                     | people animal | people animal food things
        find finds found      | trouve trouvent trouvé trouver          | finden findet fand           | encuentra encontró encontraron encontrar | people animal | people animal food things
        look_for looks_for looked_for | cherche cherchent cherché chercher | suchen sucht suchte       | busca buscó buscaron buscar           | people animal | people animal food things
        hear hears heard      | entend entendent entendu entendr        | hören hört hörte             | oye oyó oyeron oir                    | people animal | people animal vehicle
        love loves loved      | aime aiment aimé aimer                  | lieben liebt liebte          | ama amó amaron amar                   | people        | people animal
        draw draws drew       | dessine dessinent dessiné dessiner      | zeichnen zeichnet zeichnete  | dibuja dibujó dibujaron dibujar       | people        | people animal food things
        eat eats ate          | mange mangent mangé manger              | essen isst aß                | come comió comieron comer             | people animal | food
        taste tastes tasted   | goûte goûtent goûté goûter              | probieren probiert probierte | prueba probó probaron probar          | people        | food
        buy buys bought       | achète achètent acheté achèter          | kaufen kauft kaufte          | compra compró compraron comprar       | people        | food things
        sell sells sold       | vend vendent vendu vendr                | verkaufen verkauft verkaufte | vende vendió vendieron vender         | people        | food things
        clean cleans cleaned  | nettoie nettoient nettoyé nettoier      | putzen putzt putzte          | limpia limpió limpiaron limpiar       | people        | tool clothing furniture vehicle
        wash washes washed    | lave lavent lavé laver                  | waschen wäscht wusch         | lava lavó lavaron lavar               | people        | clothing food
        carry carries carried | porte portent porté porter              | tragen trägt trug            | lleva llevó llevaron llevar           | people        | food tool clothing furniture
        lose loses lost       | perd perdent perdu perdr                | verlieren verliert verlor    | pierde perdió perdieron perder        | people        | tool clothing
        use uses used         | utilise utilisent utilisé utiliser      | benutzen benutzt benutzte    | usa usó usaron usar                   | people        | tool vehicle
        steal steals stole    | vole volent volé voler                  | stehlen stiehlt stahl        | roba robó robaron robar               | people        | food things
        hate hates hated      | déteste détestent détesté détester      | hassen hasst hasste          | odia odió odiaron odiar               | people        | people animal food
        fear fears feared     | craint craignent craint craindr         | fürchten fürchtet fürchtete  | teme temió temieron temer             | people animal | people animal
        admire admires admired | admire admirent admiré admirer         | bewundern bewundert bewunderte | admira admiró admiraron admirar     | people        | people building instrument plant
        kiss kisses kissed    | embrasse embrassent embrassé embrasser  | küssen küsst küsste          | besa besó besaron besar               | people        | people animal
        bite bites bit        | mord mordent mordu mordr                | beißen beißt biss            | muerde mordió mordieron morder        | animal        | people animal
        chase chases chased   | poursuit poursuivent poursuivi poursuivr | verfolgen verfolgt verfolgte | persigue persiguió persiguieron perseguir | people animal | people animal vehicle
        observe observes observed | observe observent observé observer  | beobachten beobachtet beobachtete | observa observó observaron observar | people animal | people animal plant building vehicle
        photograph photographs photographed | photographie photographient photographié photographier | fotografieren fotografiert fotografierte | fotografía fotografió fotografiaron fotografiar | people | people animal plant building vehicle
        paint paints painted  | peint peignent peint peindr             | malen malt malte             | pinta pintó pintaron pintar           | people        | people animal plant building
        forget forgets forgot | oublie oublient oublié oublier          | vergessen vergisst vergaß    | olvida olvidó olvidaron olvidar       | people        | tool clothing toy document instrument
        break breaks broke    | casse cassent cassé casser              | zerbrechen zerbricht zerbrach | rompe rompió rompieron romper        | people animal | tool toy tableware furniture building
        build builds built    | construit construisent construit construir | bauen baut baute          | construye construyó construyeron construir | people     | building vehicle furniture toy
        repair repairs repaired | répare réparent réparé réparer        | reparieren repariert reparierte | repara reparó repararon reparar    | people        | tool furniture vehicle instrument toy building
        hide hides hid        | cache cachent caché cacher              | verstecken versteckt versteckte | esconde escondió escondieron esconder | people animal | food tool clothing toy document tableware
        throw throws threw    | lance lancent lancé lancer              | werfen wirft warf            | lanza lanzó lanzaron lanzar           | people        | tool clothing toy tableware food
        write writes wrote    | écrit écrivent écrit écrir              | schreiben schreibt schrieb   | escribe escribió escribieron escribir | people        | document
        plant plants planted  | plante plantent planté planter          | pflanzen pflanzt pflanzte    | planta plantó plantaron plantar       | people        | plant
        peel peels peeled     | épluche épluchent épluché éplucher      | schälen schält schälte       | pela peló pelaron pelar               | people        | food
    """,
    "ditransitive": """
        give gives gave       | donne donnent donné donner              | geben gibt gab               | da dio dieron dar                     | people | food things
        show shows showed     | montre montrent montré montrer          | zeigen zeigt zeigte          | muestra mostró mostraron mostrar      | people | food things animal
        send sends sent       | envoie envoient envoyé enverr           | schicken schickt schickte    | envía envió enviaron enviar           | people | food things
        bring brings brought  | apporte apportent apporté apporter      | bringen bringt brachte       | trae trajo trajeron traer             | people | food things
        lend lends lent       | prête prêtent prêté prêter              | leihen leiht lieh            | presta prestó prestaron prestar       | people | tool clothing vehicle instrument toy document tableware
    """,
}  # fmt: skip

PLACE_ROWS = """
    in garden   | dans jardin m  | in Garten m    | en jardín m
    in kitchen  | dans cuisine f | in Küche f     | en cocina f
    in forest   | dans forêt f   | in Wald m      | en bosque m
    at market   | à marché m     | auf Markt m    | en mercado m
    at school   | à école f      | in Schule f    | en escuela f
    in city     | dans ville f   | in Stadt f     | en ciudad f
    in house    | dans maison f  | in Haus n      | en casa f
    in church   | dans église f  | in Kirche f    | en iglesia f
    in street   | dans rue f     | auf Straße f   | en calle f
    on beach    | sur plage f    | an Strand m    | en playa f
    in park     | dans parc m    | in Park m      | en parque m
    at station  | à gare f       | an Bahnhof m   | en estación f
    in hotel    | dans hôtel m   | in Hotel n     | en hotel m
    in castle   | dans château m | in Schloss n   | en castillo m
    in hospital | à hôpital m    | in Krankenhaus n | en hospital m
    in museum   | à musée m      | in Museum n    | en museo m
    at theatre  | à théâtre m    | in Theater n   | en teatro m
    at airport  | à aéroport m   | an Flughafen m | en aeropuerto m
    in restaurant | dans restaurant m | in Restaurant n | en restaurante m
    in office   | dans bureau m  | in Büro n      | en oficina f
    in village  | dans village m | in Dorf n      | en pueblo m
    in desert   | dans désert m  | in Wüste f     | en desierto m
    on island   | sur île f      | auf Insel f    | en isla f
    in cellar   | dans cave f    | in Keller m    | en sótano m
    on farm     | à ferme f      | auf Bauernhof m | en granja f
    in stadium  | dans stade m   | in Stadion n   | en estadio m
    in factory  | dans usine f   | in Fabrik f    | en fábrica f
"""

TIME_ROWS = """
    yesterday | past | yesterday        | hier                 | gestern       | ayer
    last_week | past | last_week        | la_semaine_dernière  | letzte_Woche  | la_semana_pasada
    tomorrow  | future | tomorrow       | demain               | morgen        | mañana
    next_week | future | next_week      | la_semaine_prochaine | nächste_Woche | la_próxima_semana
    now       | present | now           | maintenant           | jetzt         | ahora
    today     | present | today         | aujourd'hui          | heute         | hoy
    every_day | present | every_day     | chaque_jour          | jeden_Tag     | todos_los_días
    morning   | past present future | in_the_morning   | le_matin     | am_Morgen     | por_la_mañana
    afternoon | past present future | in_the_afternoon | l'après-midi | am_Nachmittag | por_la_tarde
    night     | past present future | at_night         | la_nuit      | in_der_Nacht  | por_la_noche
    summer    | past present future | in_summer        | en_été       | im_Sommer     | en_verano
    winter    | past present future | in_winter        | en_hiver     | im_Winter     | en_invierno
    spring    | past present future | in_spring        | au_printemps | im_Frühling   | en_primavera
    autumn    | past present future | in_autumn        | en_automne   | im_Herbst     | en_otoño
    midnight  | past present future | at_midnight      | à_minuit     | um_Mitternacht | a_medianoche
    last_year | past | last_year        | l'année_dernière     | letztes_Jahr  | el_año_pasado
    next_year | future | next_year      | l'année_prochaine    | nächstes_Jahr | el_próximo_año
    soon      | future | soon           | bientôt              | bald          | pronto
"""

GROUPS = {
    "people": frozenset({"person", "role"}),
    "things": frozenset(
        {"tool", "clothing", "furniture", "vehicle", "instrument", "toy", "document", "tableware"}
    ),
}
"""Names for several kinds of noun, as the columns above use them."""

# Words that are pleasant or unpleasant by themselves, whatever the sentence makes of them.
POSITIVE = frozenset(
    {"beautiful", "delicious", "clever", "brave", "kind", "happy"}
    | {"love", "kiss", "admire", "smile", "laugh", "dance"}
)
NEGATIVE = frozenset(
    {"dirty", "rusty", "rotten", "poor", "cruel", "sad", "angry", "sick", "hungry"}
    | {"hate", "fear", "bite", "steal", "lose", "break", "cry", "die", "explode"}
)


def _rows(table: str) -> list[list[list[str]]]:
    """A table as rows of columns of forms."""
    return [
        [[form.replace("_", " ") for form in column.split()] for column in line.split("|")]
        for line in table.strip().splitlines()
    ]


def _kinds(words: list[str]) -> frozenset[str]:
    """Kinds of noun, with the groups written out."""
    return frozenset().union(*(GROUPS.get(word, {word}) for word in words))


def _noun(kind: str, row: list[list[str]]) -> Noun:
    en, fr, de, es = row
    return Noun(
        name=en[0],
        kind=kind,
        en=(en[0], en[1]),
        fr=(fr[0], fr[1]),
        fr_gender=fr[2][0],
        de=(de[0], de[1]),
        de_gender=de[2][0],
        de_weak=de[2].endswith("*"),
        es=(es[0], es[1]),
        es_gender=es[2][0],
        es_stressed_a=es[2].endswith("!"),
    )


def _adjective(kind: str, row: list[list[str]]) -> Adjective:
    (name,), fr, (de,), es, fits = row
    return Adjective(
        name=name,
        kind=kind,
        fits=_kinds(fits),
        fr=(fr[0], fr[1], fr[2], fr[1] + "s"),
        fr_before="<" in fr,
        fr_before_vowel=fr[4] if len(fr) > 4 else fr[0],
        de=de,
        es=(es[0], es[1], es[2], es[2] if es[0] == es[1] else es[1] + "s"),
    )


def _verb(frame: str, row: list[list[str]]) -> Verb:
    en, fr, de, es, subjects, objects = row
    return Verb(
        name=en[0],
        frame=frame,
        subjects=_kinds(subjects),
        objects=_kinds(objects),
        en=(en[0], en[1], en[2]),
        fr_present=(fr[0], fr[1]),
        fr_participle=fr[2],
        fr_future=fr[3],
        fr_with_etre=fr[-1] == "e",
        de=(de[0], de[1], de[2]),
        es_present=es[0],
        es_past=(es[1], es[2]),
        es_future=es[3],
    )


def _place(row: list[list[str]]) -> Place:
    en, fr, de, es = (tuple(column) for column in row)
    return Place(en[1], en, fr, de, es)


def _time(row: list[list[str]]) -> Time:
    (name,), tenses, *adverbials = row
    return Time(name, tuple(tenses), *(forms[0] for forms in adverbials))


NOUNS = {n.name: n for kind, table in NOUNS_BY_KIND.items() for n in (_noun(kind, r) for r in _rows(table))}
ADJECTIVES = {
    a.name: a
    for kind, table in ADJECTIVES_BY_KIND.items()
    for a in (_adjective(kind, r) for r in _rows(table))
}
VERBS = {
    v.name: v for frame, table in VERBS_BY_FRAME.items() for v in (_verb(frame, r) for r in _rows(table))
}
PLACES = {p.name: p for p in map(_place, _rows(PLACE_ROWS))}
TIMES = {t.name: t for t in map(_time, _rows(TIME_ROWS))}

# The French words whose h is aspirated: nothing is elided before them.
FR_ASPIRATED = frozenset(
    form
    for table in NOUNS_BY_KIND.values()
    for row in _rows(table)
    if row[1][2].endswith("h")
    for form in row[1][:2]
)

# "the" and "a" are grammar; the others carry a meaning of their own. `True`: only with a plural.
DETERMINERS = {"the": False, "a": False, "my": False, "our": False, "this": False} | dict.fromkeys(
    ("many", "two", "three", "four", "five", "ten"), True
)
